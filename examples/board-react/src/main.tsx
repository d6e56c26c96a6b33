import { StrictMode, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { bytes, progress } from "reciproc";
import { Board } from "./Board.js";
import { Confirm, Import, Log, People, Upload } from "./panels.js";
import { Provider, useConnection } from "./rpc.js";
import "./style.css";

function App() {
  /** The user. `undefined` until the server has sent the name, and `null` if no user has logged in. */
  const [name, setName] = useState<string | null>();
  useEffect(() => {
    if (name === undefined) void fetch("/me").then(async (response) => setName((await response.json()).name));
  }, [name]);
  if (name === undefined) return null;
  if (name === null) return <Login onLogin={() => setName(undefined)} />;
  const logOut = async () => {
    await fetch("/logout", { method: "POST" });
    setName(undefined);
  };
  return (
    <Provider url="/rpc" options={{ use: [bytes, progress], retry: "not-sent" }}>
      <header>
        <h1>Board</h1>
        <People name={name} />
        <Status />
        <button onClick={() => void logOut()}>Log out {name}</button>
      </header>
      <Board name={name} />
      <aside>
        <Import />
        <Upload />
        <Log />
      </aside>
      <Confirm />
    </Provider>
  );
}

function Login({ onLogin }: { onLogin: () => void }) {
  const logIn = async (data: FormData) => {
    const { ok } = await fetch("/login", { method: "POST", body: String(data.get("name")) });
    if (ok) onLogin();
  };
  return (
    <form className="login" action={logIn}>
      <h1>Board</h1>
      <input name="name" aria-label="Name" placeholder="Your name" maxLength={40} required autoFocus />
      <button>Log in</button>
    </form>
  );
}

const TEXTS = { connecting: "Connecting", open: "Live", suspended: "Reconnecting", closed: "Logged out" };

function Status() {
  const { state, countdown, retryNow } = useConnection();
  return (
    <>
      <p role="status" className={state}>
        {TEXTS[state]}
      </p>
      {countdown !== undefined && <button onClick={retryNow}>in {countdown} s</button>}
    </>
  );
}

createRoot(document.getElementById("root")!).render(
  <StrictMode>
    <App />
  </StrictMode>,
);
