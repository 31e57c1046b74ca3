"""Groups that scale by themselves, and machines that a provider takes back."""
