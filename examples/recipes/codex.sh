#!/bin/sh
# title: Codex
# package: npm @openai/codex
# gateway: limits: { foreign_response_ids: allow }
# note: It ignores `OPENAI_BASE_URL`, so the gateway is a provider of its own on the command line. It speaks the Responses API, and puts
# note: ids of its own on messages, which the gateway must allow.
provider="{ name = \"Fairgate\", base_url = \"$OPENAI_BASE_URL\", env_key = \"OPENAI_API_KEY\", wire_api = \"responses\" }"
exec codex exec --model "${MODEL:-sim}" --sandbox workspace-write --skip-git-repo-check \
  --config model_provider=fairgate --config "model_providers.fairgate=$provider" - <"$FAIRGATE_PROMPT_FILE"
