//! Prints the drawing of an algorithm, the choice for a few sizes and the page of algorithms.
use oxccl_schedule::algorithms::find;
use oxccl_schedule::cost::Link;
use oxccl_schedule::explain::{algorithms_markdown, draw, explain};
use oxccl_schedule::ir::Shape;
use oxccl_schedule::select::{Query, Reach};
use oxccl_types::Collective;

fn main() {
    let shape = Shape { collective: Collective::AllReduce, ranks: 4, root: 0, channels: 1, in_place: false, local: 1 };
    for name in ["staged_two_shot", "tree", "recursive"] {
        println!("{}", draw(&find(name).expect("a name of the table").schedule(&shape)));
    }
    for reach in [Reach::MappedUser, Reach::MappedScratch, Reach::Messages(Link::Tcp)] {
        for bytes in [1 << 10, 1 << 20, 64 << 20] {
            println!("{}", explain(&Query::new(Collective::AllReduce, bytes, 4, reach)));
        }
    }
    print!("{}", algorithms_markdown());
}
