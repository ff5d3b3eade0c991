#!/bin/sh
# title: OpenCode
# package: npm opencode-ai
# note: The gateway is a provider in its configuration, which may be given in a variable.
export OPENCODE_CONFIG_CONTENT='{
  "provider": {"fairgate": {
    "npm": "@ai-sdk/openai-compatible",
    "options": {"baseURL": "{env:OPENAI_BASE_URL}", "apiKey": "{env:OPENAI_API_KEY}"},
    "models": {"'"${MODEL:-sim}"'": {}}
  }}
}'
exec opencode run --model "fairgate/${MODEL:-sim}" <"$FAIRGATE_PROMPT_FILE"
