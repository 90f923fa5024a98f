"""``odi explain``: where is my row?"""
