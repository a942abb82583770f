"""Spark judges runs; following one; the Spark that stays."""
