"""Models of MLflow's registry: versions, approvals, promotions."""

from __future__ import annotations

from fastapi import APIRouter

from headway.api.auth.dependencies import Anyone, Approver, Member, State
from headway.schemas.base import API_PREFIX
from headway.schemas.storage.models import (
    Alias,
    ApprovalIn,
    ApprovalOut,
    ManifestOut,
    ModelOut,
    PromotionIn,
    PromotionOut,
    RequiredGatesIn,
    RequiredGatesOut,
    SigningKeyOut,
)
from headway.services.models import promotions as service

router = APIRouter(prefix=f"{API_PREFIX}/clusters/{{name}}", tags=["jobs"])


@router.get("/models")
async def list_models(name: str, state: State, who: Member) -> list[ModelOut]:
    """Returns the models of the person's teams, each with its latest version."""
    return await service.list_models(state, who, name)


@router.get("/models/{team}/{model}")
async def get_model(name: str, team: str, model: str, state: State, who: Member) -> ModelOut:
    """Returns a model of a team with its newest versions, their jobs and metrics, and the approvals."""
    return await service.get_model(state, who, name, team, model)


@router.post("/models/{team}/{model}/approvals", status_code=201, name="approve")
async def approve(name: str, team: str, model: str, request: ApprovalIn, state: State, who: Approver) -> ApprovalOut:
    """Stores the person's approval of a version with its present files. A lead of the team, an operator and an admin may."""
    return await service.approve(state, who, name, team, model, request)


@router.post("/promotions", status_code=201, name="start")
async def start_promotion(name: str, request: PromotionIn, state: State, who: Member) -> PromotionOut:
    """Asks for the promotion of a version: if it passes the gates, the alias is set and a signed manifest is kept. With `dry_run`
    it returns what the gates see that need no job."""
    return await service.start_promotion(state, who, name, request)


@router.get("/promotions")
async def list_promotions(name: str, state: State, who: Member, team: str = "", model: str = "") -> list[PromotionOut]:
    """Returns the latest promotions of the person's teams, or of one model."""
    return await service.list_promotions(state, who, name, team=team, model=model)


@router.get("/promotions/{promotion}")
async def get_promotion(name: str, promotion: str, state: State, who: Member) -> PromotionOut:
    """Returns a promotion with its gates."""
    return await service.get_promotion(state, who, name, promotion)


@router.get("/promotions/{promotion}/manifest")
async def get_manifest(name: str, promotion: str, state: State, who: Member) -> ManifestOut:
    """Returns the signed manifest of a promotion."""
    return await service.get_manifest(state, who, name, promotion)


@router.get("/required-gates/{team}/{alias}")
async def get_required_gates(name: str, team: str, alias: str, state: State, who: Member) -> RequiredGatesOut:
    """Returns the gates that all promotions of a team's models to an alias must pass."""
    return await service.get_required_gates(state, who, name, team, alias)


@router.put("/required-gates/{team}/{alias}", name="require_gates")
async def require_gates(
    name: str, team: str, alias: Alias, request: RequiredGatesIn, state: State, who: Approver
) -> RequiredGatesOut:
    """Sets these gates. A lead of the team and an admin may."""
    return await service.require_gates(state, who, name, team, alias, request)


@router.get("/signing-key")
async def get_signing_key(name: str, state: State, _who: Anyone) -> SigningKeyOut:
    """Returns the public key with which manifests are verified."""
    return await service.signing_key(state, name)
