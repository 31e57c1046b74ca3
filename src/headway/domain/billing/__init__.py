"""What billing counts and who pays: runs, machine lifetimes, node states, prices; periods of caps and budgets. Pure.

Not here: the computation of invoices and reports (`headway.billing`); a team's budget and caps (`domain.teams`)."""
