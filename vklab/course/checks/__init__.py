"""Visible checks of the labs: one file `lab_NN.py` a lab, one function an exercise."""
