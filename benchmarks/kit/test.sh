[ "$(cat note.txt)" = "the kit is ready" ]
