import { overTestNetwork, overTestNetworkServer } from "../socket/joins.js";
import { describeBytes, describeSocket } from "../socket/suite.js";

describeSocket("in a test network", overTestNetwork, { tooLarge: 1009 });
describeSocket("in a test network, on a server", overTestNetworkServer, { tooLarge: 1009 });
describeBytes("in a test network", overTestNetwork);
describeBytes("in a test network, on a server", overTestNetworkServer);
