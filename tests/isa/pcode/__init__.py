"""A second implementation of the vector and scalar ALU: an interpreter of AMD's ISA pseudo-code."""
