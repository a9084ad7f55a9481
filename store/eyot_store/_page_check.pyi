# What the compiled twin offers is what the plain one does.
from eyot_store.page_check import check_page as check_page
from eyot_store.page_check import child_at as child_at
from eyot_store.page_check import data_at as data_at
from eyot_store.page_check import is_branch as is_branch
from eyot_store.page_check import key_at as key_at
from eyot_store.page_check import mark_children as mark_children
from eyot_store.page_check import next_unknown as next_unknown
from eyot_store.page_check import nodes_of as nodes_of
from eyot_store.page_check import search as search
