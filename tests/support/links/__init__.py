"""Links and their ends: leaf nodes and hubs in one process or several, links that are cut or slow, storms, bridges."""
