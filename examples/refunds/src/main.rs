//! Serves payments and refunds that happen once.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clap::builder::NonEmptyStringValueParser;
use refunds::{App, Provider, app};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Payments and refunds that happen once, however often they are asked for.
#[derive(Debug, Parser)]
struct Args {
    /// Where the books and the records are: sqlite:FILE or postgres://…
    #[arg(long, default_value = "sqlite:refunds.db")]
    database: String,
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// How long the payment provider takes for everything.
    #[arg(long, default_value = "200", value_name = "MS")]
    provider_delay: u64,
    /// The provider stays silent about once in so many payouts; 0 is never.
    #[arg(long, default_value = "3", value_name = "N")]
    provider_silence: u32,
    /// The bearer token that may list and settle what is in doubt.
    #[arg(long, default_value = "desk", value_name = "TOKEN", value_parser = NonEmptyStringValueParser::new())]
    operator: String,
}

/// How long a shutdown waits for clients and handlers.
const DRAIN_MAX: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .init();
    match serve(Args::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("refunds: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(args: Args) -> Result<(), Box<dyn std::error::Error>> {
    let provider = Provider::new(Duration::from_millis(args.provider_delay), args.provider_silence);
    let App { router, layer } = app(&args.database, provider, &args.operator).await?;
    let listener = TcpListener::bind(args.listen)
        .await
        .map_err(|error| format!("listen on {}: {error}", args.listen))?;
    println!("{}", welcome(listener.local_addr()?, &args.operator));
    let mut terminate = signal(SignalKind::terminate())?;
    let stopping = CancellationToken::new();
    let stop = stopping.clone();
    let stop = async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        stop.cancel();
    };
    let serve = async {
        let served = axum::serve(listener, router).with_graceful_shutdown(stop).await;
        layer.drain().await;
        served
    };
    // A client that never finishes its request must not keep the process from ending.
    let late = async {
        stopping.cancelled().await;
        tokio::time::sleep(DRAIN_MAX).await;
    };
    tokio::select! {
        served = serve => served?,
        () = late => eprintln!("refunds: stopped with requests unfinished after {} s", DRAIN_MAX.as_secs()),
    }
    Ok(())
}

fn welcome(address: SocketAddr, operator: &str) -> String {
    format!(
        "listening on http://{address}; send this twice, and see one payment in the ledger:

  curl -i http://{address}/payments -H 'authorization: Bearer ada' -H 'idempotency-key: order-1066' \\
    -H 'content-type: application/json' -d '{{\"account\":\"ada\",\"amount\":1000}}'
  curl http://{address}/ledger -H 'authorization: Bearer ada'

a payout is in doubt when the provider stays silent; the operator settles those, and sent again they are all paid:

  for n in 1 2 3 4 5 6; do curl -i http://{address}/payouts -H 'authorization: Bearer ada' \\
    -H \"idempotency-key: payout-$n\" -H 'content-type: application/json' \\
    -d '{{\"account\":\"ada\",\"amount\":700}}'; done
  curl -s http://{address}/doubts -H 'authorization: Bearer {operator}' | grep -o '/doubts/[0-9a-f]*' |
    xargs -I LINK curl -X POST http://{address}LINK -H 'authorization: Bearer {operator}'
"
    )
}
