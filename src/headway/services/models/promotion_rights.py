"""Who may promote models, and the gates that an alias requires. Both are checked when a promotion is asked for, and again in each
of its rounds: days can lie between them."""

from __future__ import annotations

from headway.domain.cluster import Cluster
from headway.errors import Refused
from headway.services.access.role_rights import Principal, Right, principal_for
from headway.services.app_state import AppState
from headway.services.jobs.tagged_submission import absent_person
from headway.services.models.model_versions import require_team
from headway.services.models.stored_promotion import StoredPromotion
from headway.store.jobs.promotions import PromotionRow


def user_for_gates(cluster: Cluster, who: Principal, team: str, user: str) -> str:
    """Returns the Linux user that the jobs of the gates run as; `user`: the one that was asked for, "" for the person's own.
    Raises NotFound, and NotAllowed if the person may not see the team's models or act as this user."""
    require_team(cluster, who, team)
    return who.user_to_act_as("" if user == who.user else user)


async def require_still_allowed(state: AppState, cluster: Cluster, row: PromotionRow, stored: StoredPromotion) -> None:
    """Raises HeadwayError if the person may no longer promote this model, or the gates that the alias requires have changed."""
    who = await absent_person(state, cluster, row.person)
    user_for_gates(cluster, who, row.team, row.user)
    required = await state.store.promotions.required_gates(row.cluster, row.team, row.alias)
    if dict(required.document) != dict(stored.required):
        raise Refused(f"the gates that {row.alias} requires have changed", hint="promote the version again")


def approver_roles(cluster: Cluster, who: Principal, team: str) -> list[str]:
    """Returns the roles for which the person can approve models of a team, as gates name them."""
    leads = next((one.leads for one in cluster.teams if one.name == team), ())
    if who.may(Right.ADMIN):
        return ["lead", "operator", "admin"]
    found = ["lead"] if who.may(Right.LEAD_TEAM) and who.user in leads else []
    return [*found, "operator"] if who.may(Right.OPERATE_NODES) else found


async def approver_roles_now(state: AppState, cluster: Cluster, person: str, team: str) -> list[str]:
    """Returns the roles for which a person can approve models of a team now; none for one who may not sign in any more."""
    found = await state.store.people.get(person)
    return [] if found is None or found.disabled else approver_roles(cluster, principal_for(found), team)
