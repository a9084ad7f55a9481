"""LMDB's pages, read without LMDB: checks, contents, and recovery.

Entry points: `pages.Pages`, `survey.survey`, `mend.examine`. Imports `records` and `page_check`.
"""
