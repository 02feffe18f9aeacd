"""Results of a batch: records on disk, and the CSVs, pages and reports made from them."""
