#!/bin/sh
# title: Claude Code
# package: npm @anthropic-ai/claude-code
# note: It finds the gateway and the task's key in the environment, and reads the prompt from standard input. The model's upstream must
# note: speak Anthropic's API: `dialects: [anthropic]`. The list of tools says what it may do without asking.
export CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1
exec claude --print --model "${MODEL:-sim}" --allowedTools Bash,Edit,Read,Write
