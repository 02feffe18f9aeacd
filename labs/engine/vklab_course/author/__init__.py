"""Tools of authors: the source of a lab, its products and its gates."""
