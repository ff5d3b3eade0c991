#!/bin/sh
# title: Gemini CLI
# package: npm @google/gemini-cli
# untested: to be seen
export GEMINI_API_KEY="$FAIRGATE_KEY" GOOGLE_GEMINI_BASE_URL="$FAIRGATE_URL"
exec gemini --model "${MODEL:-sim}" --yolo <"$FAIRGATE_PROMPT_FILE"
