import { createReciproc } from "reciproc/react";
import type { PageApi, ServerApi } from "../api.js";

export const { Provider, usePeer, useStatus, useConnection, useNotification, useHandler, useStream } = createReciproc<
  ServerApi,
  PageApi
>();
