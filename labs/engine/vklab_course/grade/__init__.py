"""Grading: releases, submissions, sandbox, marks and reports."""
