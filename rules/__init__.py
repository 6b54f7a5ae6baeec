"""The rule language of prometheus-adapter, with the extensions of this project.

Everything here is pure: no sockets, no clock, no event loop. docs/rules.md describes the language.
"""
