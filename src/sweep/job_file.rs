//! Job files that run a sweep's shards on a batch engine: a Slurm job array, a Kubernetes indexed job.

use std::fmt;
use std::num::NonZeroUsize;
use std::path::Path;

use clap::ValueEnum;
use tenantry_reports::manifest::quoted;
use tenantry_reports::whole::write_whole;

use crate::cli::SweepArgs;
use crate::failure::Failure;
use crate::output::make_folder;

/// What runs jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// A job array: `sbatch`.
    Slurm,
    /// An indexed job: `kubectl apply`.
    Kubernetes,
}

/// A job file that was written, and what to do with it.
pub struct Written {
    engine: Engine,
    pub path: String,
    out: String,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written { engine, path, out } = self;
        match engine {
            Engine::Slurm => write!(f, "sbatch {path}"),
            Engine::Kubernetes => write!(f, "give {path} your image and volume, then kubectl apply -f {path}"),
        }?;
        write!(f, "; when all are done: tenantry merge {out}")
    }
}

/// Writes the job file into the sweep's folder.
pub fn write(engine: Engine, shards: NonZeroUsize, args: &SweepArgs) -> Result<Written, Failure> {
    let name = job_name(&args.scenario.scenario);
    let (file, text) = match engine {
        Engine::Slurm => {
            let program = std::env::current_exe().map_err(Failure::running)?;
            let folder = std::env::current_dir().map_err(Failure::running)?;
            let program = program.display().to_string();
            (
                "sweep.sbatch",
                slurm(&name, shards, &folder.display().to_string(), &program, args),
            )
        }
        Engine::Kubernetes => ("sweep-job.yaml", kubernetes(&name, shards, args)),
    };
    make_folder(&args.out)?;
    let path = args.out.join(file);
    write_whole(&path, text.as_bytes()).map_err(Failure::running)?;
    Ok(Written {
        engine,
        path: quoted(&path.display().to_string()),
        out: quoted(&args.out.display().to_string()),
    })
}

fn slurm(name: &str, shards: NonZeroUsize, folder: &str, program: &str, args: &SweepArgs) -> String {
    let out = args.out.display().to_string();
    let program = quoted(program);
    let sweep = arguments(args);
    format!(
        "#!/bin/bash
# One task a shard. A task that is stopped and started again goes on where it was.
#
#     sbatch {file}
#     tenantry merge {merged}       # when all tasks are done
#
#SBATCH --job-name={name}
#SBATCH --array=1-{shards}
#SBATCH --cpus-per-task={cores}
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --chdir={folder}
#SBATCH --output={log}
set -euo pipefail
# Slurm's signals reach the program itself: it saves nothing half done and ends with 130.
exec {program} {sweep} --shard \"$SLURM_ARRAY_TASK_ID/{shards}\" --jobs \"${{SLURM_CPUS_PER_TASK:-{cores}}}\"
",
        cores = cores(args),
        file = quoted(&args.out.join("sweep.sbatch").display().to_string()),
        merged = quoted(&out),
        // Slurm reads quotes as a shell does, and a percent sign as the start of a number of the job's.
        folder = quoted(folder),
        log = quoted(&format!("{}/slurm-%A_%a.log", out.replace('%', "%%"))),
    )
}

fn kubernetes(name: &str, shards: NonZeroUsize, args: &SweepArgs) -> String {
    let sweep = arguments(args);
    let out = quoted(&args.out.display().to_string());
    format!(
        "# One pod a shard. A pod that is lost is started again and goes on where it was, since all share one volume. When the job is
# complete, where that volume is mounted: tenantry merge {out}
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  completionMode: Indexed
  completions: {shards}
  parallelism: {shards}      # pods at a time
  backoffLimit: {backoff}
  podFailurePolicy:          # what is wrong with a scenario is wrong each time (needs Kubernetes 1.26)
    rules:
      - action: FailJob
        onExitCodes: {{ containerName: sweep, operator: In, values: [2] }}
  template:
    spec:
      restartPolicy: Never
      containers:
        - name: sweep
          image: tenantry:latest       # yours, with the program in it
          workingDir: /work            # the scenario and its files lie there, and the results go there
          command: [/bin/sh, -c]
          args:
            - |
              exec tenantry {sweep} --shard \"$((JOB_COMPLETION_INDEX + 1))/{shards}\" --jobs {cores}
          resources:
            requests: {{ cpu: \"{cores}\", memory: 1Gi }}
          volumeMounts:
            - {{ name: work, mountPath: /work }}
      volumes:
        - name: work
          persistentVolumeClaim: {{ claimName: tenantry }}   # yours; many pods write to it
",
        cores = cores(args),
        backoff = shards.get().saturating_mul(3),
    )
}

/// Of each shard's job.
fn cores(args: &SweepArgs) -> usize {
    args.jobs.map_or(1, NonZeroUsize::get)
}

/// The sweep on the command line, but for its shard.
fn arguments(args: &SweepArgs) -> String {
    let profile = args.profile.as_ref();
    let profile = profile.map_or(String::new(), |profile| format!(" --profile {}", quoted(profile)));
    let out = quoted(&args.out.display().to_string());
    format!("sweep {}{profile} --out {out}", args.scenario.words())
}

/// The scenario's name as both engines take it: a label of a domain name.
fn job_name(scenario: &str) -> String {
    let stem = Path::new(scenario).file_stem().unwrap_or_default().to_string_lossy();
    let letter = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    let name: String = stem.chars().map(letter).take(40).collect();
    format!("sweep-{}", name.trim_matches('-')).trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels() {
        assert_eq!(job_name("scenarios/hmi/fig-11.yaml"), "sweep-fig-11");
        assert_eq!(job_name("My Question?.yaml"), "sweep-my-question");
        assert_eq!(job_name("???"), "sweep");
    }
}
