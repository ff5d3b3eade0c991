#!/bin/sh
# The command of every agent in docs/team.md. It runs in a checkout that the task has to itself: it asks the model what the
# task says, commits the answer, pushes it as a branch, and leaves the names of its notes as the task's result.
set -eu
git reset --quiet --hard origin/main

question=$(sed -n 's/^Ask a person: //p' "$FAIRGATE_PROMPT_FILE")
if [ -n "$question" ] && [ -z "${FAIRGATE_ANSWER-}" ]; then
  printf '%s' "$question" >"$FAIRGATE_RESULT_FILE"
  exit 77
fi

tokens=$(sed -n 's/^Tokens: //p' "$FAIRGATE_PROMPT_FILE")
answer=$(jq --null-input --rawfile prompt "$FAIRGATE_PROMPT_FILE" --argjson tokens "${tokens:-450}" \
    '{model: "sim", max_tokens: $tokens, messages: [{role: "user", content: $prompt}]}' |
  curl --silent --show-error --fail-with-body "$OPENAI_BASE_URL/chat/completions" \
    --header "authorization: Bearer $OPENAI_API_KEY" --header 'content-type: application/json' --data @-) ||
  { printf '%s\n' "$answer" >&2; exit 1; }

mkdir -p notes
printf '%s' "$answer" | jq --exit-status --raw-output '.choices[0].message.content' >"notes/$FAIRGATE_TASK.md"
git add notes
git commit --quiet --message "$FAIRGATE_TASK"
# A branch of its own, so that tasks do not wait for each other. A try before this one may have pushed it already.
git push --quiet --force origin "HEAD:refs/heads/$FAIRGATE_TASK"

# The results of the tasks that this one needs are files here.
{
  echo "notes/$FAIRGATE_TASK.md"
  for result in "${FAIRGATE_RESULTS_DIR:-/none}"/*; do
    [ ! -e "$result" ] || { cat "$result"; echo; }
  done
} >"$FAIRGATE_RESULT_FILE"
