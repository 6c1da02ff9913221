//! A whole pool as a question that any machine can answer: queries to several shared models, and what the card says of
//! these. Planning is work of the host, so that it is an op on a lane like any other ([`crate::op::PlanPool`]), and the
//! server hears of the plan when that has ended.

use std::sync::Arc;

use super::{Batching, MacroBatch, Planner, Query, Tables};

/// A pool that is to be split into batches.
#[derive(Clone, Debug)]
pub struct PoolQuestion {
    /// α and β, by shared model.
    pub tables: Arc<[Tables]>,
    /// How.
    pub batching: Batching,
    /// By shared model: its queries, whose ids are their places in the pool.
    pub queries: Vec<Vec<Query>>,
}

/// A batch of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlannedBatch {
    /// Its shared model.
    pub model: u16,
    /// Places in the pool, each with the number of its mini-batch, which ascends.
    pub members: Vec<(u32, u32)>,
}

/// The batches of a pool: those of one model after the other, each model's shortest first except where their size is
/// fixed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolPlan {
    /// At least one.
    pub batches: Vec<PlannedBatch>,
}

impl Planner {
    /// Adds one shared model's batches to a pool's plan.
    ///
    /// # Panics
    /// If a query has no price: servers let none in that has not.
    pub fn answer(&mut self, question: &PoolQuestion, model: u16, answer: &mut PoolPlan) {
        let index = usize::from(model);
        let plan = self
            .plan(&question.tables[index], question.batching, &question.queries[index])
            .expect("queries that are let in have prices");
        let batch = |batch: &MacroBatch| {
            let minis = plan.mini_batches[batch.mini_batches.clone()].iter().zip(0..);
            let members = minis.flat_map(|(mini, number)| {
                let places = &plan.order[mini.first as usize..(mini.first + mini.count) as usize];
                places.iter().map(move |&place| (place, number))
            });
            PlannedBatch {
                model,
                members: members.collect(),
            }
        };
        answer.batches.extend(plan.batches.iter().map(batch));
    }
}
