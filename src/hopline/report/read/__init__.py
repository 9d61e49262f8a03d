"""Reading tables: batches of Parquet come in, and small facts come out. No HTML here."""
