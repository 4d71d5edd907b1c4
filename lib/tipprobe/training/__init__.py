"""Adapting a model: update rules, rollout scoring, the trainer, and runs that can be interrupted.

Read in this order: `objectives` (the rules as pure functions), `methods` (which rule and reward makes which
method), `rollouts` (from replies to rewards), `policy` and `trainer` (the optimiser's side, on TRL), `config`
and `runs` (what a run is), `adapt` (adaptation runs), `sft` and `proposer` (the writer of tips).  `show` lays
results out for notebooks.  Import from the modules: some of them load torch.
"""
