//! Data-parallel training of a small network on real handwritten digits, checked against a single process.
//!
//! `cargo run --release -p train_digits [--dtype f32|bf16|both] [--ranks N] [--epochs N] [--threads]`
//!
//! The program trains alone, then as several ranks (processes that it starts itself; with `--threads` threads), and
//! fails with status 1 unless the loss curves agree, all ranks end with the same parameters bit by bit, and more than
//! 95 % of the held-out digits are named rightly.

mod data;
mod net;
mod train;

use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use oxccl::{Communicator, ReduceOp, UniqueId};
use train::{Alone, BATCH, Outcome, Together, Wire};

type Anyhow<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

const USAGE: &str = "usage: train_digits [--dtype f32|bf16|both] [--ranks N] [--epochs N] [--threads]";

struct Options {
    wires: Vec<Wire>,
    ranks: usize,
    epochs: usize,
    threads: bool,
    /// Set in the processes that the program starts.
    rank: Option<usize>,
}

fn options() -> Anyhow<Options> {
    let mut o = Options { wires: vec![Wire::F32, Wire::Bf16], ranks: 4, epochs: 30, threads: false, rank: None };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--threads" {
            o.threads = true;
            continue;
        }
        let value = arguments.next().ok_or(USAGE)?;
        match (name.as_str(), value.as_str()) {
            ("--dtype", "f32") => o.wires = vec![Wire::F32],
            ("--dtype", "bf16") => o.wires = vec![Wire::Bf16],
            ("--dtype", "both") => {}
            ("--ranks", n) => o.ranks = n.parse()?,
            ("--epochs", n) => o.epochs = n.parse::<std::num::NonZeroUsize>()?.get(),
            ("--rank", n) => o.rank = Some(n.parse()?),
            _ => return Err(USAGE.into()),
        }
    }
    if o.ranks == 0 || !BATCH.is_multiple_of(o.ranks) {
        return Err(format!("--ranks {}: must divide the batch of {BATCH}", o.ranks).into());
    }
    Ok(o)
}

fn main() -> ExitCode {
    let done = options().and_then(|o| match o.rank {
        None => compare(&o),
        Some(rank) => child(rank, &o),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("train_digits: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Trains alone and together and compares.
fn compare(o: &Options) -> Anyhow<()> {
    let (alone, _) = train::train(&mut Alone, o.epochs)?;
    println!("{} digits to train on, 297 held out; {} parameters, batches of {BATCH}", data::TRAINING, net::PARAMETERS);
    let mut faults = Vec::new();
    for wire in &o.wires {
        let begin = Instant::now();
        let together = if o.threads { threads(*wire, o)? } else { processes(*wire, o)? };
        let seconds = begin.elapsed().as_secs_f64();
        faults.extend(report(&alone, &together, *wire, o.ranks, seconds));
    }
    if faults.is_empty() {
        return Ok(());
    }
    Err(faults.join("\n").into())
}

/// Prints both curves; returns what is wrong.
fn report(alone: &Outcome, together: &Outcome, wire: Wire, ranks: usize, seconds: f64) -> Vec<String> {
    println!("\ngradients in {}, {ranks} ranks, {seconds:.2} s\n epoch   1 process   {ranks} ranks", wire.name());
    let last = alone.losses.len() - 1;
    for (i, (a, t)) in alone.losses.iter().zip(&together.losses).enumerate() {
        if i % 5 == 0 || i == last {
            println!(" {:5}   {a:9.6}   {t:9.6}", i + 1);
        }
    }
    let differences = alone.losses.iter().zip(&together.losses).map(|(a, t)| (a - t).abs());
    let worst = differences.fold(0.0, f32::max);
    println!(
        "greatest difference {worst:.1e} (allowed {:.0e}); accuracy on held-out digits {:.1} % (1 process {:.1} %)",
        wire.tolerance(),
        100.0 * together.accuracy,
        100.0 * alone.accuracy
    );
    let mut faults = Vec::new();
    // Written so that NaN is a fault.
    if !together.losses.iter().all(|l| l.is_finite()) || worst > wire.tolerance() {
        faults.push(format!("{}: the loss curve differs from the single process's by {worst}", wire.name()));
    }
    if together.losses.len() != alone.losses.len() {
        faults.push(format!("{}: {} epochs instead of {}", wire.name(), together.losses.len(), alone.losses.len()));
    }
    if together.accuracy <= 0.95 {
        faults.push(format!("{}: accuracy {:.3} is not above 0.95", wire.name(), together.accuracy));
    }
    faults
}

/// One rank's training; checks that all ranks end with the same parameters.
fn rank(comm: &Communicator, wire: Wire, epochs: usize) -> oxccl::Result<Outcome> {
    let (outcome, parameters) = train::train(&mut Together::new(comm, wire)?, epochs)?;
    let bits: Vec<u32> = parameters.iter().map(|p| p.to_bits()).collect();
    let (mut least, mut greatest) = (bits.clone(), bits);
    comm.all_reduce_in_place(&mut least, ReduceOp::Min)?;
    comm.all_reduce_in_place(&mut greatest, ReduceOp::Max)?;
    if least != greatest {
        return Err(oxccl::Error::internal("the ranks' parameters differ at the end of the training"));
    }
    Ok(outcome)
}

fn threads(wire: Wire, o: &Options) -> Anyhow<Outcome> {
    let comms = Communicator::init_all(o.ranks)?;
    std::thread::scope(|s| {
        let all: Vec<_> = comms.into_iter().map(|c| s.spawn(move || rank(&c, wire, o.epochs))).collect();
        let mut outcomes = all.into_iter().map(|t| t.join().map_err(|_| "a rank panicked"));
        let first = outcomes.next().ok_or("no ranks")??;
        outcomes.try_for_each(|o| o?.map(|_| ()).map_err(Into::<Box<dyn std::error::Error + Send + Sync>>::into))?;
        Ok(first?)
    })
}

/// Starts this program once per rank, hands over the id by pipe and reads the outcome from rank 0's output.
fn processes(wire: Wire, o: &Options) -> Anyhow<Outcome> {
    let id = UniqueId::create()?.to_string();
    let mut children = Vec::new();
    for rank in 0..o.ranks {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--rank", &rank.to_string(), "--ranks", &o.ranks.to_string()])
            .args(["--epochs", &o.epochs.to_string(), "--dtype", wire.name()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        child.stdin.take().ok_or("no pipe to a rank")?.write_all(id.as_bytes())?;
        children.push(child);
    }
    // All are waited for, also when one failed.
    let ended: Vec<_> = children.into_iter().map(|c| c.wait_with_output()).collect();
    let outputs = ended.into_iter().collect::<Result<Vec<_>, _>>()?;
    if let Some(rank) = outputs.iter().position(|o| !o.status.success()) {
        return Err(format!("rank {rank} failed: {}", outputs[rank].status).into());
    }
    let text = std::str::from_utf8(&outputs[0].stdout)?;
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    let accuracy = numbers.next().ok_or("rank 0 wrote nothing")??;
    let losses = numbers.map(|n| n.map(|n| n as f32)).collect::<Result<_, _>>()?;
    Ok(Outcome { losses, accuracy })
}

/// A process of `processes`: reads the id, trains, writes the accuracy and the losses.
fn child(number: usize, o: &Options) -> Anyhow<()> {
    let mut id = String::new();
    std::io::stdin().read_to_string(&mut id)?;
    let comm = Communicator::init(o.ranks, id.parse()?, number)?;
    let outcome = rank(&comm, o.wires[0], o.epochs)?;
    if number == 0 {
        println!("{}", outcome.accuracy);
        outcome.losses.iter().for_each(|l| println!("{l}"));
    }
    Ok(())
}
