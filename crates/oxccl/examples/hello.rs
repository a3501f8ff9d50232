//! The smallest program: four ranks as threads of one process sum a vector.
//!
//! `cargo run --release -p oxccl --example hello`

use oxccl::{Communicator, ReduceOp};

fn main() -> oxccl::Result<()> {
    let ranks = Communicator::init_all(4)?;
    std::thread::scope(|threads| {
        let all: Vec<_> = ranks.into_iter().map(|comm| threads.spawn(move || one_rank(&comm))).collect();
        all.into_iter().try_for_each(|t| t.join().expect("a rank panicked"))
    })
}

fn one_rank(comm: &Communicator) -> oxccl::Result<()> {
    let mut x = vec![comm.rank() as f32; 1000];
    comm.all_reduce_in_place(&mut x, ReduceOp::Sum)?;
    assert!(x.iter().all(|v| *v == 6.0)); // 0 + 1 + 2 + 3
    println!("rank {} of {}: {}", comm.rank(), comm.ranks(), x[0]);
    Ok(())
}
