"""Adapters: the packages that people call models with, scheduled without a change to the calls.

Each is a module of its own, so that a program needs only the packages it uses: :mod:`fairgate.adapters.openai`,
:mod:`fairgate.adapters.anthropic`, :mod:`fairgate.adapters.langchain`.
"""
