"""``odi explain`` and ``odi stream explain``: where is my row?"""
