"""A stream's log as the loop's thread sees it: staging, reading, removing, on disk or in memory."""
