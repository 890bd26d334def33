// Starts what the page needs. Everything here is an addition: pages read and filter without scripts.
import { startCancel } from "./cancel.js";
import { startControls } from "./controls.js";
import { startFilters } from "./filters.js";
import { startKeys } from "./keys.js";
import { startLists } from "./lists.js";
import { startLive } from "./live.js";
import { startRefresh } from "./refresh.js";
import { startTalk } from "./talk.js";
import { startTimes } from "./times.js";

startTimes();
startControls();
startFilters();
startKeys();
startCancel();
startTalk();
startLists();
startRefresh();
startLive();
document.documentElement.dataset.ready = "yes";
