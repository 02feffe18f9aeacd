"""The visible checks of the labs, one file each: `lab_NN.py`, one function per exercise."""
