#!/bin/sh
# title: Aider
# package: PyPI aider-chat
# note: The base URL is an option; the key is in the environment.
exec aider --model "openai/${MODEL:-sim}" --openai-api-base "$OPENAI_BASE_URL" --message-file "$FAIRGATE_PROMPT_FILE" \
  --yes-always --no-check-update --analytics-disable --no-show-model-warnings --no-gitignore
