import { Likes } from "./likes.jsx";

export default function Page() {
  return (
    <main>
      <h1>Likes</h1>
      <Likes />
    </main>
  );
}
