//! Ranks as processes: the program starts itself once per rank and hands the id over the child's standard input.
//!
//! `cargo run --release -p oxccl --example processes [RANKS]`

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use oxccl::{Communicator, ReduceOp, UniqueId};

type Anyhow<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Anyhow<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--rank", rank, ranks] => one_rank(rank.parse()?, ranks.parse()?),
        [] => start(4),
        [ranks] => start(ranks.parse()?),
        _ => Err("usage: processes [RANKS]".into()),
    }
}

/// Starts the ranks and waits for them. This process is the meeting point of the id, so it outlives their joining.
fn start(ranks: usize) -> Anyhow<()> {
    let id = UniqueId::create()?.to_string();
    let mut children = Vec::new();
    for rank in 0..ranks {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["--rank", &rank.to_string(), &ranks.to_string()])
            .stdin(Stdio::piped())
            .spawn()?;
        let mut pipe = child.stdin.take().ok_or("no pipe to the child")?;
        pipe.write_all(id.as_bytes())?;
        children.push(child);
    }
    let ended: Vec<bool> = children.iter_mut().map(|c: &mut Child| c.wait().is_ok_and(|s| s.success())).collect();
    if ended.contains(&false) { Err("a rank failed".into()) } else { Ok(()) }
}

fn one_rank(rank: usize, ranks: usize) -> Anyhow<()> {
    let mut id = String::new();
    std::io::stdin().read_to_string(&mut id)?;
    let comm = Communicator::init(ranks, id.parse()?, rank)?;

    let mine = [rank as u64, std::process::id().into()];
    let mut all = vec![0; 2 * ranks];
    comm.all_gather(&mine, &mut all)?;
    let mut sum = [rank as u64];
    comm.all_reduce_in_place(&mut sum, ReduceOp::Sum)?;
    assert_eq!(sum[0] as usize, ranks * (ranks - 1) / 2);
    assert_eq!(all[2 * rank..2 * rank + 2], mine);
    if rank == 0 {
        println!("process ids of ranks 0 to {}: {:?}", ranks - 1, all.chunks(2).map(|c| c[1]).collect::<Vec<_>>());
    }
    Ok(())
}
