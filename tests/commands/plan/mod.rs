//! The command `plan`: its files, its exit codes.

mod answers;
mod questions;
mod refusals;

const PLAN: &str = "plan={find: fewest-cards, gpus: {from: 1, to: 8}}";
const LOAD: [&str; 6] = [
    "--set",
    "workload={arrivals: {poisson: {rate: 20000/s}}, lengths: {input: {fixed: 30}}, stop: {requests: 4000}}",
    "--set",
    "slo={latency: 50ms, at: p98}",
    "--set",
    PLAN,
];

fn plan<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["plan", "s.yaml"], &LOAD[..], more].concat()
}
