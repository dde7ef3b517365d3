//! The real binary in front of a small shop.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::extract::Request as Asked;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

const TOKEN: &str = "a-token-that-nobody-may-read";
/// Until a count that was just begun shows; far more than it takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// The service behind the gateway.
pub(super) struct Shop {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<HeaderMap>>>,
    closing: CancellationToken,
    open: tokio::task::JoinHandle<()>,
}

impl Shop {
    pub(super) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::<Mutex<Vec<HeaderMap>>>::default();
        let notes = Arc::clone(&seen);
        let charge = move |asked: Asked| async move {
            notes.lock().unwrap().push(asked.headers().clone());
            (StatusCode::CREATED, "a receipt that nobody-may-read")
        };
        let notes = Arc::clone(&seen);
        let hello = move |asked: Asked| async move { notes.lock().unwrap().push(asked.headers().clone()) };
        let router = Router::new()
            .route("/charges", post(charge))
            .route("/hello", get(hello))
            .route("/break", post(hang_up));
        let closing = CancellationToken::new();
        let closed = closing.clone().cancelled_owned();
        let serve = axum::serve(listener, router).with_graceful_shutdown(closed);
        let open = tokio::spawn(async move { serve.await.unwrap() });
        Self {
            address,
            seen,
            closing,
            open,
        }
    }

    /// The headers of every request that reached it.
    pub(super) fn seen(&self) -> Vec<HeaderMap> {
        self.seen.lock().unwrap().clone()
    }

    /// Answers nobody any more.
    pub(super) async fn close(self) {
        self.closing.cancel();
        self.open.await.unwrap();
    }
}

/// Closes the connection without an answer, and without a word in the test's output.
async fn hang_up() {
    std::panic::resume_unwind(Box::new(()));
}

/// A request.
pub(super) struct Ask {
    method: Method,
    path: String,
    headers: Vec<(String, String)>,
    content: Bytes,
}

impl Ask {
    pub(super) fn get(path: &str) -> Self {
        Self {
            method: Method::GET,
            path: path.to_owned(),
            headers: Vec::new(),
            content: Bytes::new(),
        }
    }

    pub(super) fn post(path: &str, content: &str) -> Self {
        Self {
            method: Method::POST,
            ..Self::get(path)
        }
        .content(content)
    }

    pub(super) fn content(mut self, content: &str) -> Self {
        self.content = Bytes::copy_from_slice(content.as_bytes());
        self
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    async fn send(&self, address: SocketAddr) -> Told {
        let uri = format!("http://{address}{}", self.path);
        let request = Request::builder().method(&self.method).uri(uri);
        let request = self.headers.iter().fold(request, |request, (name, value)| {
            request.header(name.as_str(), value.as_str())
        });
        let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
        let request = request.body(Full::new(self.content.clone())).unwrap();
        let (parts, body) = client.request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Told {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(body.into()).unwrap(),
        }
    }
}

/// An answer.
pub(super) struct Told {
    status: StatusCode,
    pub(super) headers: HeaderMap,
    text: String,
}

impl Told {
    #[track_caller]
    pub(super) fn is(&self, status: u16) {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
    }
}

/// `exactly serve`, running.
pub(super) struct Server {
    child: Child,
    upstream: SocketAddr,
    gateway: SocketAddr,
    admin: SocketAddr,
    log: Option<JoinHandle<String>>,
    folder: Option<TempDir>,
}

impl Server {
    /// Starts in front of `shop`, and logs what is of `level` or worse.
    pub(super) fn start(shop: &Shop, level: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), shop.address, level)
    }

    fn start_in(folder: TempDir, upstream: SocketAddr, level: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_exactly"))
            .args(["serve", "--log-format", "json"])
            .args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--upstream", &format!("http://{upstream}")])
            .args(["--store", "sqlite:exactly.db"])
            .current_dir(folder.path())
            .env("EXACTLY_ADMIN_TOKEN", TOKEN)
            .env("RUST_LOG", level)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let log = std::thread::spawn(move || {
            let mut text = String::new();
            stderr.read_to_string(&mut text).unwrap();
            text
        });
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut address = || {
            let line = lines.next().unwrap().unwrap();
            let (_, address) = line.rsplit_once("http://").unwrap();
            address.parse().unwrap()
        };
        let (gateway, admin) = (address(), address());
        Self {
            child,
            upstream,
            gateway,
            admin,
            log: Some(log),
            folder: Some(folder),
        }
    }

    pub(super) async fn ask(&self, ask: &Ask) -> Told {
        ask.send(self.gateway).await
    }

    /// What operators are shown.
    async fn page(&self) -> String {
        let ask = Ask::get("/metrics").header("authorization", &format!("Bearer {TOKEN}"));
        let told = ask.send(self.admin).await;
        told.is(200);
        told.text
    }

    /// Name and labels → value.
    pub(super) async fn metrics(&self) -> BTreeMap<String, String> {
        let page = self.page().await;
        let samples = page.lines().filter(|line| !line.starts_with('#'));
        samples
            .filter_map(|line| {
                let (name, value) = line.rsplit_once(' ')?;
                Some((name.to_owned(), value.to_owned()))
            })
            .collect()
    }

    /// The value of a metric that is measured in the background, once it is.
    pub(super) async fn metric(&self, name: &str) -> String {
        let measured = async {
            loop {
                if let Some(value) = self.metrics().await.remove(name) {
                    return value;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(PATIENCE, measured).await.expect(name)
    }

    /// Name → type, of all that is explained.
    pub(super) async fn described(&self) -> BTreeMap<String, String> {
        let page = self.page().await;
        let words = |mark: &'static str| {
            let lines = page.lines().filter_map(move |line| line.strip_prefix(mark));
            lines.filter_map(|line| {
                let (name, rest) = line.split_once(' ')?;
                Some((name.to_owned(), rest.to_owned()))
            })
        };
        let types: BTreeMap<_, _> = words("# TYPE ").collect();
        let help: BTreeMap<_, _> = words("# HELP ").collect();
        assert!(types.keys().eq(help.keys()), "{page}");
        assert!(help.values().all(|text| text.ends_with('.')), "{page}");
        types
    }

    /// Stops it and starts another on the same store.
    pub(super) fn restart(mut self) -> Self {
        self.end();
        let folder = self.folder.take().unwrap();
        Self::start_in(folder, self.upstream, "off")
    }

    /// Stops it and gives what it logged.
    pub(super) fn stop(mut self) -> Vec<Value> {
        self.end();
        let log = self.log.take().unwrap().join().unwrap();
        let json = log.lines().filter(|line| line.starts_with('{'));
        json.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn end(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}
