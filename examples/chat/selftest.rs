//! The self test. Clients send lines to one room, and check the lines that they get. Guests join and leave meanwhile.

use std::fmt;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use procession::BoxError;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::timeout;

/// So long that only a broken server reaches it.
const LIMIT: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) clients: usize,
    pub(crate) lines: usize,
}

impl Plan {
    /// Clients that come while the others talk, and say one line.
    fn guests(self) -> usize {
        self.clients.div_ceil(10)
    }
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { clients: 200, lines: 20 }
    }
}

#[derive(Debug)]
pub(crate) struct Report {
    plan: Plan,
    took: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Plan { clients, lines } = self.plan;
        let each = clients * lines;
        write!(f, "{clients} clients: each got {each} lines, all in the same order, ")?;
        write!(f, "while {} guests came and left, in {:.2?}", self.plan.guests(), self.took)
    }
}

struct Client {
    lines: Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl Client {
    async fn join(server: SocketAddr, name: &str) -> Result<Client, BoxError> {
        let (reader, mut writer) = TcpStream::connect(server).await?.into_split();
        writer.write_all(format!("test {name}\n").as_bytes()).await?;
        let mut client = Client { lines: BufReader::new(reader).lines(), writer };
        while client.line().await? != "* welcome" {}
        Ok(client)
    }

    async fn line(&mut self) -> Result<String, BoxError> {
        Ok(self.lines.next_line().await?.ok_or("the server has hung up")?)
    }

    /// Joins while others talk, says a line, and leaves when it has got it.
    async fn visit(server: SocketAddr, name: String) -> Result<(), BoxError> {
        let mut guest = Client::join(server, &name).await?;
        guest.writer.write_all(b"hello\n").await?;
        while guest.line().await? != format!("{name}: hello") {}
        Ok(())
    }

    /// Says its lines, and returns the lines of all clients in the order in which they came.
    async fn talk(mut self, plan: Plan) -> Result<Vec<String>, BoxError> {
        let said: String = (0..plan.lines).map(|line| format!("line {line}\n")).collect();
        let mut writer = self.writer;
        // Beside the reader: otherwise both sides could wait for each other.
        let writes = tokio::spawn(async move { writer.write_all(said.as_bytes()).await.map(|()| writer) });
        let mut all = Vec::new();
        while all.len() < plan.clients * plan.lines {
            let line = self.lines.next_line().await?.ok_or("the server has hung up")?;
            if line.starts_with("client") {
                all.push(line);
            }
        }
        // Its connection stays until all have read everything.
        let _writer = writes.await??;
        Ok(all)
    }
}

/// Connects the clients, has all of them talk at once, and compares what they got.
pub(crate) async fn run(server: SocketAddr, plan: Plan) -> Result<Report, BoxError> {
    let began = Instant::now();
    let mut clients = Vec::new();
    for number in 0..plan.clients {
        clients.push(timeout(LIMIT, Client::join(server, &format!("client{number}"))).await??);
    }
    let talks: Vec<_> = clients.into_iter().map(|client| tokio::spawn(client.talk(plan))).collect();
    let guests = (0..plan.guests()).map(|number| format!("guest{number}"));
    let visits: Vec<_> = guests.map(|name| tokio::spawn(Client::visit(server, name))).collect();
    for visit in visits {
        timeout(LIMIT, visit).await???;
    }
    let mut first: Option<Vec<String>> = None;
    for talk in talks {
        let got = timeout(LIMIT, talk).await???;
        if first.get_or_insert_with(|| got.clone()) != &got {
            return Err("two clients got the lines in different orders".into());
        }
    }
    let got = first.unwrap_or_default();
    for number in 0..plan.clients {
        let name = format!("client{number}: line ");
        let numbers = got.iter().filter_map(|line| line.strip_prefix(&name)?.parse::<usize>().ok());
        if !numbers.eq(0..plan.lines) {
            return Err(format!("the lines of client {number} came out of order, or not at all").into());
        }
    }
    Ok(Report { plan, took: began.elapsed() })
}
