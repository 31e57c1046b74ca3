"""What the server remembers of usage: runs of jobs, lives of machines, prices, invoices, and sums over them."""
