//! Whether the kernel paces what a connection sends, as it does where the system's choice of congestion control is bbr: to a rate
//! that it guesses, by a timer for each packet. Within a machine there is no link to share, and the timers cost a fifth of the
//! processor (docs/performance-changes.md).
//!
//! A connection that was paced once keeps the timers under any other congestion control. So all of this library begin without, and
//! those which carry data to another machine are given what the system has chosen.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// What paces.
const PACED: &str = "bbr";
/// What every kernel has and offers to everybody, and does not pace.
const UNPACED: &str = "reno";

/// Has a socket that is not connected yet, or what a listener accepts, send at once what the window allows, where it would be paced;
/// any other choice of the system stays.
///
/// # Errors
/// Those of the kernel, after which it is paced as before.
pub fn leave_out(socket: impl AsFd) -> io::Result<()> {
    if is_paced(&sockopt::tcp_congestion(&socket)?) {
        sockopt::set_tcp_congestion(&socket, UNPACED)?;
    }
    Ok(())
}

/// What a connection that carries data keeps: [`leave_out`] where it stays `within` the machine, else what the system has chosen.
///
/// # Errors
/// Those of the kernel, after which it is as before.
pub fn settle(stream: impl AsFd, within: bool) -> io::Result<()> {
    if within { leave_out(stream) } else { resume(stream) }
}

/// Gives a connection what the system has chosen, where [`leave_out`] has replaced it.
fn resume(stream: impl AsFd) -> io::Result<()> {
    let chosen = chosen()?;
    if is_paced(&chosen) && sockopt::tcp_congestion(&stream)? == UNPACED {
        sockopt::set_tcp_congestion(&stream, &chosen)?;
    }
    Ok(())
}

fn is_paced(name: &str) -> bool {
    name.starts_with(PACED)
}

/// What the system chooses for a new connection.
fn chosen() -> io::Result<String> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    Ok(sockopt::tcp_congestion(&socket)?)
}
