"""What a history says.

`stories` sorts it by run (`runs`) and job (`jobs`); `origins` and `reading` read single records.
"""
