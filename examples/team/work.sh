#!/bin/sh
# The command of every agent in docs/team.md. It runs in a checkout that the task has to itself: it asks the model what the
# task says, commits the answer, pushes it, and leaves the names of its notes as the task's result.
set -eu
git fetch --quiet
git reset --quiet --hard origin/main

question=$(sed -n 's/^Ask a person: //p' "$FAIRGATE_PROMPT_FILE")
if [ -n "$question" ] && [ -z "${FAIRGATE_ANSWER-}" ]; then
  printf '%s' "$question" >"$FAIRGATE_RESULT_FILE"
  exit 77
fi

answer=$(jq --null-input --rawfile prompt "$FAIRGATE_PROMPT_FILE" \
    '{model: "sim", max_tokens: 60, messages: [{role: "user", content: $prompt}]}' |
  curl --silent --show-error --fail-with-body "$OPENAI_BASE_URL/chat/completions" \
    --header "authorization: Bearer $OPENAI_API_KEY" --header 'content-type: application/json' --data @-) ||
  { printf '%s\n' "$answer" >&2; exit 1; }

mkdir -p notes
printf '%s' "$answer" | jq --exit-status --raw-output '.choices[0].message.content' >"notes/$FAIRGATE_TASK.md"
git add notes
git commit --quiet --message "$FAIRGATE_TASK"
tries=0
# Another task may push to the same repository meanwhile.
until git pull --quiet --rebase && git push --quiet; do
  tries=$((tries + 1))
  [ "$tries" -lt 50 ]
  sleep 0.1
done

# The results of the tasks that this one needs are files here.
{
  echo "notes/$FAIRGATE_TASK.md"
  [ -z "${FAIRGATE_RESULTS_DIR-}" ] || cat "$FAIRGATE_RESULTS_DIR"/*
} >"$FAIRGATE_RESULT_FILE"
