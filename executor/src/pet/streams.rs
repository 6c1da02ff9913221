//! Streams of operators: threads, the first of them the caller's, and on a GPU a stream of the device for each.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use tch::{Device, Tensor};

use super::batch::operate;
use super::kind::Linear;
use super::loaded::LoadedOperators;
use crate::device::{Event, Stream, prepare_lane_thread};
use crate::error::ExecutorError;

/// One task's operators at one linear layer, over its own mini-batch.
#[derive(Debug)]
pub(crate) struct Job {
    pub operators: LoadedOperators,
    pub layer: usize,
    pub linear: Linear,
    /// Views of the batch's inputs and results.
    pub x: Tensor,
    pub y: Tensor,
}

impl Job {
    fn perform(&self) -> Result<(), ExecutorError> {
        tch::no_grad(|| operate(&*self.operators, self.layer, self.linear, &self.x, &self.y))
    }
}

type Outcome = Result<Result<(), ExecutorError>, Box<dyn Any + Send>>;

/// Threads that a layer's PET operators run on side by side. On a GPU each issues to a stream of its own, which waits
/// for what the caller has issued before, and the caller's for what they have.
#[derive(Debug)]
pub struct Streams {
    device: Device,
    /// Of the other threads.
    streams: Vec<Stream>,
    /// Places in the caller's stream and in each of the others, marked anew for each layer's products.
    places: RefCell<Vec<Event>>,
    workers: Vec<Sender<Job>>,
    outcomes: Receiver<Outcome>,
    threads: Vec<JoinHandle<()>>,
}

impl Streams {
    /// Of a CPU.
    ///
    /// # Errors
    /// As [`on`](Self::on).
    pub fn new(count: u32) -> Result<Streams, ExecutorError> {
        Streams::on(Device::Cpu, count)
    }

    /// The calling thread and `count - 1` others.
    ///
    /// # Errors
    /// No streams, a device that is lost, or a system that has no more threads.
    pub fn on(device: Device, count: u32) -> Result<Streams, ExecutorError> {
        if count == 0 {
            return Err(ExecutorError::input("streams", "at least 1", 0));
        }
        let (report, outcomes) = mpsc::channel();
        let mut streams = Streams {
            device,
            streams: Vec::new(),
            places: RefCell::default(),
            workers: Vec::new(),
            outcomes,
            threads: Vec::new(),
        };
        for stream in 1..count {
            let (sender, jobs) = mpsc::channel::<Job>();
            let report = report.clone();
            let own = Stream::new(device)?;
            let worker = move || {
                prepare_lane_thread();
                // Ends when the streams are dropped.
                while let Ok(job) = jobs.recv() {
                    let perform = || own.make_current().and_then(|()| job.perform());
                    let outcome = catch_unwind(AssertUnwindSafe(perform));
                    drop(job);
                    if report.send(outcome).is_err() {
                        return;
                    }
                }
            };
            let thread = std::thread::Builder::new().name(format!("stream {stream}")).spawn(worker);
            let thread =
                thread.map_err(|error| ExecutorError::input("streams", format!("at most {stream} here"), error))?;
            streams.streams.push(own);
            streams.places.borrow_mut().push(Event::new(device)?);
            streams.threads.push(thread);
            streams.workers.push(sender);
        }
        Ok(streams)
    }

    /// How many.
    pub fn count(&self) -> u32 {
        self.workers.len() as u32 + 1
    }

    /// Does all jobs, each stream its own in their order, and returns when all are done.
    pub(crate) fn run(
        &self,
        jobs: impl Iterator<Item = Result<(u32, Job), ExecutorError>>,
    ) -> Result<(), ExecutorError> {
        let (mut own, mut others, mut result) = (Vec::new(), Vec::new(), Ok(()));
        for job in jobs {
            match job {
                Ok((0, job)) => own.push(job),
                Ok((stream, job)) => others.push((stream as usize - 1, job)),
                Err(error) => result = Err(error),
            }
        }
        // A batch may leave some streams alone: they are neither told nor waited for.
        let mut at_work: Vec<usize> = others.iter().map(|(other, _)| *other).collect();
        at_work.sort_unstable();
        at_work.dedup();
        self.let_wait(&at_work)?;
        let handed_over = others.len();
        for (other, job) in others {
            self.workers[other].send(job).expect("a worker lives as long as its streams");
        }
        for job in own {
            result = result.and(job.perform());
        }
        // Even after an error: the others still write into the batch.
        for _ in 0..handed_over {
            match self.outcomes.recv().expect("a worker lives as long as its streams") {
                Ok(outcome) => result = result.and(outcome),
                Err(panic) => resume_unwind(panic),
            }
        }
        result.and(self.wait_for(&at_work))
    }

    /// What is issued to these others from now on comes after what the caller has issued.
    fn let_wait(&self, others: &[usize]) -> Result<(), ExecutorError> {
        let Some(&first) = others.first() else {
            return Ok(());
        };
        let so_far = &mut self.places.borrow_mut()[first];
        so_far.record(Stream::current(self.device)?)?;
        others.iter().try_for_each(|&other| self.streams[other].wait_for(so_far))
    }

    /// What the caller issues from now on comes after what these others have issued.
    fn wait_for(&self, others: &[usize]) -> Result<(), ExecutorError> {
        let own = Stream::current(self.device)?;
        // A stream that waits has been told for what: the place may be marked anew.
        let places = &mut self.places.borrow_mut()[..];
        others.iter().try_for_each(|&other| {
            let so_far = &mut places[other];
            so_far.record(self.streams[other])?;
            own.wait_for(so_far)
        })
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        self.workers.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
