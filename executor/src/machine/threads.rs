//! Workers that are threads: one for each lane.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration as HostDuration, Instant};

use tch::Device;
use tenantry_core::ids::{LaneId, RequestId};
use tenantry_core::machine::{LookupCounts, MachineError};
use tenantry_core::op::OpKind;
use tenantry_core::topology::Lane;
use tenantry_traces::Time;

use super::clocks::{Clocks, LaneClocks};
use super::errors::{self, LaneErrors};
use super::{Batch, Job, Ran, Workers};
use crate::device::{Stream, yield_to_loop};
use crate::error::ExecutorError;

/// Does one lane's ops, one after the other.
pub trait Perform: Send {
    /// Where it issues its work. On a GPU its thread has a stream of its own there.
    fn device(&self) -> Device {
        Device::Cpu
    }

    /// Called once on the lane's own thread, before the run's time begins.
    ///
    /// # Errors
    /// What cannot be done beforehand. It does not end the run: what needs it is tried again when a request asks for
    /// it.
    fn prepare(&mut self) -> Result<(), ExecutorError> {
        Ok(())
    }

    /// Called once when the run's time begins: what it stamps counts from here.
    fn start_clock(&mut self, origin: Instant) {
        let _ = origin;
    }

    /// Does one op. Members that fail are put into the batch's list, and the others go on.
    fn perform(&mut self, kind: &OpKind, batch: &Batch);

    /// A request has left the lane's instance: called between the ops before and after.
    fn release(&mut self, request: RequestId) {
        let _ = request;
    }

    /// A request is in no more runs of the lane's instance, and what is cached of it stays: likewise.
    fn park(&mut self, request: RequestId) {
        let _ = request;
    }

    /// What holds memory of the lane's instance for requests, where anything does.
    fn vacate(&self) -> Option<Box<dyn Vacate>> {
        None
    }
}

/// Lets go of memory when the server says so, and not only when the lane comes to it: the server has promised it to
/// others.
pub trait Vacate: Send + Debug {
    /// A request has left the lane's instance.
    fn release(&self, request: RequestId);

    /// A shared prefix on the lane's instance is of no use any more.
    fn release_prefix(&self, prefix: u32);
}

/// What a worker is told, in order.
enum Message {
    Job(Job),
    Park(RequestId),
    Release(RequestId),
}

/// The longest wait without a look at the interrupt flag.
const INTERRUPT_CHECK: std::time::Duration = std::time::Duration::from_millis(50);

/// A thread for each lane, and the clock of the run.
#[derive(Debug)]
pub struct Threads {
    origin: Instant,
    lanes: Vec<Sender<Message>>,
    /// By lane.
    vacate: Vec<Option<Box<dyn Vacate>>>,
    ran: Receiver<Ran>,
    in_hand: usize,
    interrupt: Arc<AtomicBool>,
    /// Kept by the lanes that look up.
    lookups: Option<Arc<Mutex<LookupCounts>>>,
    threads: Vec<JoinHandle<LaneEnd>>,
}

/// What a lane leaves behind.
#[derive(Debug, Default)]
pub struct LaneEnd {
    /// What its ops took, where it issues to a GPU.
    pub clocks: Option<LaneClocks>,
    /// What went wrong, if anything did.
    pub errors: Option<LaneErrors>,
}

/// Held while a lane of a GPU prepares.
static PREPARING: Mutex<()> = Mutex::new(());

impl Threads {
    /// Starts a thread for each lane and who does its ops; the run's time begins when they are all prepared.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start(lanes: Vec<(Lane, Box<dyn Perform>)>, interrupt: Arc<AtomicBool>) -> Result<Threads, MachineError> {
        let (report, ran) = mpsc::channel();
        let (ready, all_ready) = mpsc::channel::<()>();
        let (begin, origins): (Vec<Sender<Instant>>, Vec<Receiver<Instant>>) =
            lanes.iter().map(|_| mpsc::channel()).unzip();
        let vacate = lanes.iter().map(|(_, perform)| perform.vacate()).collect();
        let mut senders = Vec::new();
        let mut threads = Vec::new();
        for (index, ((lane, mut perform), origin)) in lanes.into_iter().zip(origins).enumerate() {
            let (sender, messages) = mpsc::channel::<Message>();
            let (report, ready, of_lane) = (report.clone(), ready.clone(), lane.clone());
            let worker = move || {
                let device = perform.device();
                // Without a stream of its own it would be the device's default one: slower, and as right.
                let stream = Stream::new(device).and_then(Stream::make_current);
                {
                    // What a GPU's library is told while another lane's work is being captured may spoil the capture.
                    let _one_at_a_time = device.is_cuda().then(|| PREPARING.lock());
                    for done in [stream, perform.prepare()] {
                        done.unwrap_or_else(|error| errors::note(&error));
                    }
                }
                yield_to_loop();
                drop(ready);
                let Ok(origin) = origin.recv() else {
                    return LaneEnd::default();
                };
                perform.start_clock(origin);
                let mut clocks = Clocks::of(&of_lane, device);
                work(
                    LaneId(index as u32),
                    origin,
                    &messages,
                    &mut *perform,
                    &mut clocks,
                    &report,
                );
                LaneEnd {
                    clocks: clocks.and_then(|clocks| clocks.sums().ok()),
                    errors: errors::noted(&of_lane.name),
                }
            };
            let thread = std::thread::Builder::new().name(lane.name.clone()).spawn(worker);
            threads
                .push(thread.map_err(|error| MachineError::Device(format!("no thread for {}: {error}", lane.name)))?);
            senders.push(sender);
        }
        drop(ready);
        // Returns once every worker has dropped its end, that is, once all are prepared.
        let _ = all_ready.recv();
        let origin = Instant::now();
        for begin in begin {
            begin.send(origin).expect("the worker waits for the start");
        }
        Ok(Threads {
            origin,
            lanes: senders,
            vacate,
            ran,
            in_hand: 0,
            interrupt,
            lookups: None,
            threads,
        })
    }

    /// Says what the lanes count in `lookups`.
    pub fn counting(self, lookups: Option<Arc<Mutex<LookupCounts>>>) -> Threads {
        Threads { lookups, ..self }
    }

    /// Ends the threads and waits for them. A lane that panicked leaves nothing.
    pub fn stop(mut self) -> Vec<LaneEnd> {
        self.lanes.clear();
        self.threads.drain(..).filter_map(|thread| thread.join().ok()).collect()
    }
}

fn work(
    lane: LaneId,
    origin: Instant,
    messages: &Receiver<Message>,
    perform: &mut dyn Perform,
    clocks: &mut Option<Clocks>,
    report: &Sender<Ran>,
) {
    // The loop ends when the machine is dropped.
    while let Ok(message) = messages.recv() {
        let job = match message {
            Message::Job(job) => job,
            Message::Park(request) => {
                perform.park(request);
                continue;
            }
            Message::Release(request) => {
                perform.release(request);
                continue;
            }
        };
        read(clocks, Clocks::before);
        let started = since(origin);
        perform.perform(&job.kind, &job.batch);
        // The batch is let go before the coordinator hears, so that it is the last to hold it.
        drop(job);
        let ended = since(origin);
        read(clocks, |clocks| {
            clocks.after(HostDuration::from_nanos(ended.since(started).0))
        });
        if report.send(Ran { lane, started, ended }).is_err() {
            return;
        }
        read(clocks, Clocks::book);
    }
}

/// Reads a lane's clocks, if it has such, until the device is lost, of which the ops themselves speak.
fn read(clocks: &mut Option<Clocks>, how: impl FnOnce(&mut Clocks) -> Result<(), ExecutorError>) {
    if clocks.as_mut().is_some_and(|clocks| how(clocks).is_err()) {
        *clocks = None;
    }
}

/// The run's time.
pub(crate) fn since(origin: Instant) -> Time {
    Time(u64::try_from(origin.elapsed().as_nanos()).expect("a run is shorter than 584 years"))
}

impl Workers for Threads {
    fn now(&self) -> Time {
        since(self.origin)
    }

    fn issue(&mut self, job: Job) -> Result<(), MachineError> {
        self.in_hand += 1;
        let lane = job.lane;
        self.lanes[lane.index()]
            .send(Message::Job(job))
            .map_err(|_| MachineError::Device(format!("the worker of {lane} is lost")))
    }

    fn release(&mut self, lane: LaneId, request: RequestId) -> Result<(), MachineError> {
        if let Some(vacate) = &self.vacate[lane.index()] {
            vacate.release(request);
        }
        self.lanes[lane.index()]
            .send(Message::Release(request))
            .map_err(|_| MachineError::Device(format!("the worker of {lane} is lost")))
    }

    fn park(&mut self, lane: LaneId, request: RequestId) -> Result<(), MachineError> {
        self.lanes[lane.index()]
            .send(Message::Park(request))
            .map_err(|_| MachineError::Device(format!("the worker of {lane} is lost")))
    }

    fn release_prefix(&mut self, lane: LaneId, prefix: u32) -> Result<(), MachineError> {
        if let Some(vacate) = &self.vacate[lane.index()] {
            vacate.release_prefix(prefix);
        }
        Ok(())
    }

    fn wait(&mut self, deadline: Option<Time>) -> Result<Option<Ran>, MachineError> {
        loop {
            if self.interrupt.load(Ordering::Relaxed) {
                return Err(MachineError::Interrupted);
            }
            let now = self.now();
            let left = match deadline {
                Some(deadline) if deadline <= now => std::time::Duration::ZERO,
                Some(deadline) => std::time::Duration::from_nanos(deadline.since(now).0),
                None if self.in_hand == 0 => return Ok(None),
                None => INTERRUPT_CHECK,
            };
            match self.ran.recv_timeout(left.min(INTERRUPT_CHECK)) {
                Ok(ran) => {
                    self.in_hand -= 1;
                    return Ok(Some(ran));
                }
                Err(RecvTimeoutError::Timeout) => {
                    // Timers may come so often that nothing else would ever be looked at.
                    self.check_workers()?;
                    if deadline.is_some_and(|deadline| deadline <= self.now()) {
                        return Ok(None);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(MachineError::Device("all workers are lost".into()));
                }
            }
        }
    }

    fn lookups(&self) -> Option<LookupCounts> {
        let counts = self.lookups.as_ref()?;
        Some(*counts.lock().expect("no lane panics while it counts"))
    }
}

impl Threads {
    /// A worker that panicked will never report its op.
    fn check_workers(&self) -> Result<(), MachineError> {
        match self.threads.iter().find(|thread| thread.is_finished()) {
            None => Ok(()),
            Some(thread) => {
                let lane = thread.thread().name().unwrap_or("a lane");
                Err(MachineError::Device(format!("the worker of {lane} is lost")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tenantry_core::ids::GpuId;
    use tenantry_core::topology::LaneKind;

    use super::*;

    /// Cannot prepare itself.
    struct Unprepared;

    impl Perform for Unprepared {
        fn prepare(&mut self) -> Result<(), ExecutorError> {
            Err(ExecutorError::input("batch", "at least 1", 0))
        }

        fn perform(&mut self, _: &OpKind, _: &Batch) {}
    }

    /// Can.
    struct Prepared;

    impl Perform for Prepared {
        fn perform(&mut self, _: &OpKind, _: &Batch) {}
    }

    #[test]
    fn a_lane_that_cannot_be_prepared_says_why_and_serves() {
        let lane = |name: &str| Lane {
            name: name.to_owned(),
            kind: LaneKind::Compute,
            gpu: GpuId(0),
        };
        let lanes: Vec<(Lane, Box<dyn Perform>)> = vec![
            (lane("first"), Box::new(Unprepared)),
            (lane("second"), Box::new(Prepared)),
        ];
        let threads = Threads::start(lanes, Arc::default()).unwrap();
        let errors: Vec<_> = threads.stop().into_iter().map(|end| end.errors).collect();
        let of_first = LaneErrors {
            lane: "first".to_owned(),
            count: 1,
            first: "batch: must be at least 1, got 0".to_owned(),
        };
        assert_eq!(errors, [Some(of_first), None]);
    }
}
