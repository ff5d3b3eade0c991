#!/bin/sh
# title: Gemini CLI
# package: npm @google/gemini-cli
# untested: it speaks Google's API alone, which the gateway does not serve. With the gateway as its base URL, version 0.61.0 asks for
# untested: `/v1beta/models/sim:streamGenerateContent`, gets 404, and the task fails. For this program, use an agent that was made with
# untested: `fairgate agent add NAME --reports-tokens`, with a key of your own.
# seen: /v1beta/models/sim:streamGenerateContent
# note: The test runs this script, to notice if it ever works. In a process without a terminal, the program takes a base URL only if the
# note: kind of key is in a settings file; else it ends with "Invalid auth method selected".
GEMINI_CLI_HOME=$(dirname "$FAIRGATE_PROMPT_FILE")
mkdir "$GEMINI_CLI_HOME/.gemini"
echo '{"security": {"auth": {"selectedType": "gemini-api-key"}}}' >"$GEMINI_CLI_HOME/.gemini/settings.json"
export GEMINI_CLI_HOME GEMINI_CLI_TRUST_WORKSPACE=true
export GEMINI_API_KEY="$FAIRGATE_KEY" GOOGLE_GEMINI_BASE_URL="$FAIRGATE_URL"
exec gemini --model "${MODEL:-sim}" --yolo <"$FAIRGATE_PROMPT_FILE"
