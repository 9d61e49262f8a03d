"""The report: the tables of the pipeline as one page that people look at. Needs the extra `columnar`; no Spark, no Java.

    read/        tables become facts: batch by batch, in bounded memory
    findings     facts become a few plain sentences
    show/        facts become HTML and SVG

Names and texts in tables come from a network, and are never more than text here.
"""
