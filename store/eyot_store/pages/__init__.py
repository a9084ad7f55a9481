"""LMDB's pages, read without LMDB: checks, contents, and recovery.

Entry points: `pages.Pages`, `survey.survey`, `mend.examine`. Imports `page_check` and `records`.
"""
