#!/bin/sh
# What an agent does with each task here: it asks the model what the task says, and keeps the answer as the task's result.
# The task's own key and the gateway's address are in the environment.
set -eu
curl --silent --show-error --fail-with-body "$OPENAI_BASE_URL/chat/completions" \
  --header "Authorization: Bearer $OPENAI_API_KEY" --header 'Content-Type: application/json' \
  --data "{\"model\":\"sim\",\"max_tokens\":200,\"messages\":[{\"role\":\"user\",\"content\":\"$FAIRGATE_TITLE\"}]}" \
  > "$FAIRGATE_RESULT_FILE"
