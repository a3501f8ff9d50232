//! Ranks as threads, device memory and a stream: a mean and a variance over data that is spread over the ranks, then
//! a gather of everybody's part, enqueued together and waited for once.
//!
//! `cargo run --release -p oxccl --example threads [RANKS]`

use oxccl::{Communicator, DeviceBuffer, ReduceOp, Stream};

const PER_RANK: usize = 1 << 16;

fn main() -> oxccl::Result<()> {
    let ranks = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(4);
    let comms = Communicator::init_all(ranks)?;
    std::thread::scope(|threads| {
        let all: Vec<_> = comms.into_iter().map(|comm| threads.spawn(move || one_rank(&comm))).collect();
        all.into_iter().try_for_each(|t| t.join().expect("a rank panicked"))
    })
}

fn one_rank(comm: &Communicator) -> oxccl::Result<()> {
    let (me, n) = (comm.rank(), comm.ranks());
    let values: Vec<f64> = (0..PER_RANK).map(|i| (me * PER_RANK + i) as f64).collect();
    let sums = [values.iter().sum::<f64>(), values.iter().map(|v| v * v).sum()];

    let mine = DeviceBuffer::from_slice(&sums)?;
    let mut total = DeviceBuffer::<f64>::zeroed(2)?;
    let mut everybody = DeviceBuffer::<f64>::zeroed(2 * n)?;
    Stream::on(comm.device())?.scope(|s| {
        s.all_reduce(comm, &mine, &mut total, ReduceOp::Sum)?;
        s.all_gather(comm, &mine, &mut everybody)
    })?;

    let count = (n * PER_RANK) as f64;
    let mean = total[0] / count;
    let variance = total[1] / count - mean * mean;
    assert!((mean - (count - 1.0) / 2.0).abs() < 1e-6 * count);
    assert!((variance / ((count * count - 1.0) / 12.0) - 1.0).abs() < 1e-6);
    assert_eq!(everybody[2 * me..2 * me + 2], sums);
    if me == 0 {
        println!("{count} values on {n} ranks: mean {mean}, variance {variance:.1}");
    }
    Ok(())
}
